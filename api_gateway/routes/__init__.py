"""The API's endpoints, one module for each resource; the dependencies of their handlers; the OpenAPI document."""
