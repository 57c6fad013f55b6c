"""`python -m rl_training.cli`, where the `rl-training` script is not on the path."""

from rl_training.cli import main
from rl_training.processes import kill_with_starter

if __name__ == "__main__":  # workers of an environment pool import this file too
    kill_with_starter()
    main()
