"""What asyncio lacks: callers who share one answer, time limits, background work, and an orderly stop."""
