"""The API's errors, all as ``application/problem+json`` (RFC 9457), or on OpenAI's routes in OpenAI's format."""

from __future__ import annotations

from api_gateway.problems.codes import CODES, MEDIA_TYPE, NO_RETRY
from api_gateway.problems.database import TAKES_NO_WRITES, UNREACHABLE, no_database, takes_no_writes
from api_gateway.problems.documents import (
    FieldProblem,
    OpenAIErrorDocument,
    Problem,
    ProblemDocument,
    invalid,
    invalid_at,
)
from api_gateway.problems.handlers import forbid_retry, install_problem_handlers
from api_gateway.problems.validation import MOST_PROBLEMS, field_problems

__all__ = [
    "CODES",
    "MEDIA_TYPE",
    "MOST_PROBLEMS",
    "NO_RETRY",
    "TAKES_NO_WRITES",
    "UNREACHABLE",
    "FieldProblem",
    "OpenAIErrorDocument",
    "Problem",
    "ProblemDocument",
    "field_problems",
    "forbid_retry",
    "install_problem_handlers",
    "invalid",
    "invalid_at",
    "no_database",
    "takes_no_writes",
]
