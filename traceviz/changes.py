"""The changes of a program that `what_if` predicts, under the names by which `traceviz` exports them."""

from analyzers.replay.changes import DropSync as DropSync
from analyzers.replay.changes import DropWait as DropWait
from analyzers.replay.changes import Graph as Graph
from analyzers.replay.changes import Level as Level
from analyzers.replay.changes import MoreRoom as MoreRoom
from analyzers.replay.changes import MoveWait as MoveWait
from analyzers.replay.changes import OnTime as OnTime
from analyzers.replay.changes import OwnStream as OwnStream
from analyzers.replay.changes import Pin as Pin
from analyzers.replay.changes import Scale as Scale
from analyzers.replay.changes import Split as Split
