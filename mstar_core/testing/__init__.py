"""The conformance kit: a pytest plugin with ready test classes for models, resources, backends."""
