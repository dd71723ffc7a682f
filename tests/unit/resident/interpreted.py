"""The Triton kernels in Triton's interpreter; ``test_kernels.py`` runs this where it is on."""

from mstar_core.resident.triton import TRITON
from mstar_core.testing.tables import TableKernelsConformance


class TestInterpreted(TableKernelsConformance):
    kernels = TRITON
