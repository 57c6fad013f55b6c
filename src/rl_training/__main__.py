"""`python -m rl_training`: the command `rl-training`, where the script is not on the path."""

from rl_training.cli import main

if __name__ == "__main__":  # workers of an environment pool import this file too
    main()
