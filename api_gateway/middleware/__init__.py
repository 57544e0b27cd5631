"""What every request goes through: who may ask, what is logged and what is counted."""
