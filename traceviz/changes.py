"""The changes of a program that `what_if` predicts, under the names by which `traceviz` exports them."""

from analyzers.replay.host_changes import DropSync as DropSync
from analyzers.replay.host_changes import Graph as Graph
from analyzers.replay.host_changes import Level as Level
from analyzers.replay.host_changes import OnTime as OnTime
from analyzers.replay.host_changes import Pin as Pin
from analyzers.replay.order_changes import MoveWait as MoveWait
from analyzers.replay.stream_changes import DropWait as DropWait
from analyzers.replay.stream_changes import MoreRoom as MoreRoom
from analyzers.replay.stream_changes import OwnStream as OwnStream
from analyzers.replay.stream_changes import Scale as Scale
from analyzers.replay.stream_changes import Split as Split
