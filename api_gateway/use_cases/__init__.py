"""What one request comes to where several services have a part in it: a turn is posted, awaited, looked up, stopped."""
