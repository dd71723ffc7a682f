"""Resources: objects that hold a node's per-request state, or its plan of one step."""

from mstar_core.resources.base import BuildEnv, Opening, Resource, ResourceSpec
from mstar_core.resources.fence import Fences, IdPool
from mstar_core.resources.table import RequestTable

__all__ = ["BuildEnv", "Fences", "IdPool", "Opening", "RequestTable", "Resource", "ResourceSpec"]
