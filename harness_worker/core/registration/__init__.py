"""Tools, agents, hooks and judges as their authors declare them: checked, and ready to be called."""
