"""What every request passes through: access control, the access log and the request counts."""
