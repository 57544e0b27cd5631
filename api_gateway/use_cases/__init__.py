"""Requests that several services serve together: posting turns and batches, awaiting, finding and stopping them."""
