"""What a model is asked, and the tools that the harness itself offers it."""
