"""The API's endpoints, one module a resource; what FastAPI gives their handlers, and OpenAPI's document."""
