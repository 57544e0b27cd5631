"""The API's endpoints, one module a resource."""

from __future__ import annotations
