"""What turns have used: asked for, added up and answered."""
