"""What turns have used: the requests, the sums and the answers."""
