"""The HTTP service: it stores what clients ask for and reports what became of it; it never runs turns or tools.

The path of a request, here of ``POST /v1/turns``:

1. ``middleware/`` logs and counts it, and finds its tenant by the API key.
2. ``routes/turns.py`` has its handler. FastAPI gets the handler's arguments from ``routes/dependencies.py``: the body,
   which ``requests/`` reads within bounds and validates, and the tenant's ``Services``, which ``app.py`` wires.
3. ``use_cases/posting.py`` says what happens in which order: ``limits/`` let the tenant in or not, the turn is stored,
   ``publisher.py`` wakes a worker, and ``use_cases/waiting.py`` waits for the turn's end if the client wants that.
4. ``turns/creation.py`` is the transaction that stores it.
5. ``turns/answers.py`` has the answer. Whatever refuses the request raises a ``Problem``, which ``problems/`` answers.

Handlers that only read ask one service, such as ``turns/store.py`` or ``sessions.py``, and skip step 3. The routes for
OpenAI's clients have ``openai_facade/`` translate between their terms and those of steps 3 to 5.
"""
