"""The limits of a tenant: how often it may post, how many turns it may have at once, and how many dollars a day."""
