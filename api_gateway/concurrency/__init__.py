"""What asyncio lacks: askers who share an answer, limits of time, work beside requests, an end in order."""
