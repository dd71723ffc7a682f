"""The sampler and its logit rules."""

from mstar_core.ops.sampling import Sampled
from mstar_core.resources.sampler.plan import SamplerPlan
from mstar_core.resources.sampler.resource import SamplerResource
from mstar_core.resources.sampler.rules import LogitRule, RuleContext, SuppressRule

__all__ = [
    "LogitRule",
    "RuleContext",
    "Sampled",
    "SamplerPlan",
    "SamplerResource",
    "SuppressRule",
]
