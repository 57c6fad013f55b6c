from rl_training.api.algorithms import BC as BC
from rl_training.api.algorithms import DQN as DQN
from rl_training.api.algorithms import IQL as IQL
from rl_training.api.algorithms import PPO as PPO
from rl_training.api.algorithms import SAC as SAC
from rl_training.api.algorithms import train_bc as train_bc
from rl_training.api.algorithms import train_dqn as train_dqn
from rl_training.api.algorithms import train_iql as train_iql
from rl_training.api.algorithms import train_ppo as train_ppo
from rl_training.api.algorithms import train_sac as train_sac
from rl_training.api.managed import ManagedAlgorithm as ManagedAlgorithm
from rl_training.api.managed import evaluate_checkpoint as evaluate_checkpoint
from rl_training.api.managed import predict_checkpoint as predict_checkpoint
from rl_training.api.managed import resume_training as resume_training
from rl_training.data import ReplayBuffer as ReplayBuffer
from rl_training.data import RolloutBuffer as RolloutBuffer
from rl_training.data import TransitionDataset as TransitionDataset
from rl_training.data import load_transition_dataset as load_transition_dataset
from rl_training.experiment.config import TrainConfig as TrainConfig
from rl_training.experiment.config import load_config as load_config
from rl_training.experiment.manager import ExperimentManager as ExperimentManager
from rl_training.experiment.registry import get_algorithm_spec as get_algorithm_spec
from rl_training.experiment.registry import list_algorithm_specs as list_algorithm_specs
from rl_training.experiment.run import TrainResult as TrainResult
from rl_training.runtime.engine import Callback as Callback

__version__: str
