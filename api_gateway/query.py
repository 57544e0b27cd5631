"""What holds for the query of every request."""

from __future__ import annotations

from collections import Counter

from fastapi import Request

from api_gateway.problems import FieldProblem, invalid


async def no_repeats(request: Request) -> None:
    """A dependency: no parameter may be given twice, for only one of its values could count.

    Raises:
        Problem: 422 ``invalid_request``, naming each.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    twice = [name for name, times in given.items() if times > 1]
    if twice:
        raise invalid([FieldProblem(loc=["query", name[:200]], msg="must be given once") for name in twice])
