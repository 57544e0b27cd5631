"""What every request passes through: access control, the access log, the counts, and an end when the process stops."""
