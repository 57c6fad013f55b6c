"""Creates environments: from ids, classes, functions and objects, with their wrappers."""
