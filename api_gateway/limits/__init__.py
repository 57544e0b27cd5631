"""What a tenant may ask for: how often, how much at once, and for how many dollars a day."""
