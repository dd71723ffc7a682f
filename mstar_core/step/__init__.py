"""What one step is: rows, spans, buckets, leases, plans, shortages and outcomes."""

from mstar_core.step.bucket import Bucket, Lease
from mstar_core.step.outcome import Outcome
from mstar_core.step.plan import Plan, Staged, plan_class, stage_plan, staged_arrays
from mstar_core.step.shortage import Shortage
from mstar_core.step.split import CombinedSplit
from mstar_core.step.step import ResourceStep, Step

__all__ = [
    "Bucket",
    "CombinedSplit",
    "Lease",
    "Outcome",
    "Plan",
    "ResourceStep",
    "Shortage",
    "Staged",
    "Step",
    "plan_class",
    "stage_plan",
    "staged_arrays",
]
