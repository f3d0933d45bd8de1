"""Capture further programs before and after one fix: what was not at hand when fixes' order was decided.

    python3 tools/capture-further-pairs.py OUT [PAIR ...]

runs all pairs, or these, on two GPUs and writes to OUT, as they come: `traces-?.tar.gz` (eight steps of each variant, a
torch.profiler trace a rank), `step_time_ms.json` (without a profiler, 20 steps, before and after in turns, the slower
rank, median of five rounds), `log.txt`. A pair that fails is left out, with its reason in the log. What it runs itself,
once or again behind a pair that took its process along, is

    torchrun --nproc-per-node 2 tools/capture-further-pairs.py --ranks FOLDER [PAIR ...]

The fix of each pair, and which other changes name the same, was written to `tests/data/further/FIXES.json` before
anything was captured.

| pair | program | the fix |
|---|---|---|
| clip_item | transformer training; gradients clipped by a norm that `.item()` reads | the norm stays on the GPU |
| mask_dispatch | tokens of eight local experts, picked by boolean masks | one sort and a fixed number of tokens |
| accumulate_loss | gradient accumulation, convolutions; `running_loss += loss.item()` | the sum stays on the GPU |
| eval_metrics | evaluation, whose reduced metrics `.cpu()` fetches a batch | they stay on the GPU till the end |
| layer_timer | tensor-parallel layers, `torch.cuda.synchronize()` of a timer behind each | no timer |
| token_counts | expert parallelism; `.tolist()` of how many tokens go where | a fixed number of tokens |
| images_pin | training on images, `.to(device)` of a pageable batch | pin_memory and non_blocking=True |
| sparse_pin | recommendation, eight pageable id tensors copied one by one | pin_memory and non_blocking=True |
| embeddings_pin | embeddings that `.cpu()` fetches | a pinned buffer, non_blocking=True, an event a step later |
| tokenize_late | a rank tokenizes its text as it goes | it is cached, as the other's |
| writer_late | the first rank writes histograms as JSON each step | it does not |
| reduce_head | the head's gradient is all-reduced, then the encoder's backward runs | async_op=True |
| gather_items | items are all-gathered, then the users' tower runs | async_op=True |
| halo_exchange | a graph net's halo, all to all, then its interior | async_op=True |
| audio_images | a recurrence of few blocks, then augmentation of images, in one stream | the recurrence in its own |
| offload_prefetch | the next layer's weights are copied from pinned memory in the stream of the layers | in its own |
| snapshot_wait | parameters copied to the host in a side stream, for which forward waits | only the optimizer waits |
| cache_wait | a cache comes back in a side stream; the projection stands behind the wait for it | in front of it |
| ema_wait | an average of the weights stands behind the wait for the gradients' shards | in front of it |
| denoise_graph | a diffusion sampler's 100 small kernels | a CUDA graph |
| adamw_fused | AdamW(foreach=False) of 16 parameters | AdamW(fused=True) |
| shuffle_split | rows packed in four pieces, then one all-to-all | four |
| compress_split | gradients compressed in four buckets, then one all-reduce | four |
| host_bound | an all-reduce, then an average; the host's batches bound the step: nothing to gain | async_op=True |
| feed_bound | an all-gather, then other work; copies to the GPU bound the step: nothing to gain | async_op=True |

A second set, written when the first had been looked at. Its pairs run on one GPU as well, as `TRACEVIZ_RANKS=1` has it:

| pair | program | the fix |
|---|---|---|
| ppo_kl | PPO over minibatches; `.item()` of how far the policy went, to stop early | the GPU sums it up |
| unique_nodes | a graph net over sampled neighbours; `torch.unique` of their ids | a sort and as many rows as ids |
| draft_equal | speculative decoding; `if torch.equal(...)` of drafted and verified tokens | the GPU picks |
| priorities_numpy | Q-learning; the replay's priorities fetched by `.cpu().numpy()` | they stay on the GPU |
| tiles_sync | an image upscaled tile by tile, `stream.synchronize()` behind each | none |
| graph_pin | molecules' graphs, `.to(device)` of pageable features and edges | pin_memory and non_blocking=True |
| audio_pin | transcription; `.to(device, non_blocking=True)` of pageable waveforms | pin_memory |
| logits_pin | a teacher's logits, copied to a pageable buffer | a pinned one, non_blocking=True, read a step later |
| shard_pin | training; a shard of its weights copied to a pageable buffer each step | the same |
| percentile_stream | percentiles of scans by few blocks, then smoothing, in one stream | percentiles in their own |
| offload_stream | activations are copied to pinned memory in the stream of the layers | in its own |
| anchors_stream | older weights, which a penalty needs, fetched in front of forward in its stream | in their own |
| sinkhorn_graph | 600 small kernels of an optimal transport | a CUDA graph |
| augment_batch | 96 images augmented one by one | as one batch |
| detokenize_wait | serving; prefill stands behind the wait for tokens and their text | in front of it |
| rollout_wait | rollouts go to the host in a side stream; the critic stands behind the wait for it | in front of it |

A fourth set, of two ranks, written when all pairs before it had been looked at:

| pair | program | the fix |
|---|---|---|
| overflow_check | scaled losses; `if gradient.isfinite().all()` decides what is summed | the GPU decides |
| regulate_length | speech; `torch.repeat_interleave` asks how many frames there will be | output_size= |
| points_pin | lidar sweeps, `.copy_` out of pageable memory | pin_memory and non_blocking=True |
| render_pin | rendered frames, copied to a pageable buffer | a pinned one, non_blocking=True, read a step later |
| reduce_discriminator | a discriminator's gradient is all-reduced, then images are generated | async_op=True |
| broadcast_teacher | a teacher's weights are broadcast, then the student's forward runs | async_op=True |
| keys_split | keys projected in four pieces, then one all-gather | four |
| packing_late | a rank packs its documents to rows as it goes | they were packed ahead, as the other's |
| sums_stream | running sums by few blocks, then the order book's features, in one stream | sums in their own |
| index_prefetch | an index's next chunk is copied from pinned memory in the stream of the search | in its own |
| gradients_graph | 80 short iterations of conjugate gradients | a CUDA graph |
| expert_wait | tokens go to other ranks, async; the shared expert stands behind the wait for them | in front of it |
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PART_BYTES = 13 * 2**20
QUIET_S, LIMIT_S, TOGETHER_S = 75, 480, 10
PORT = 29500


def pairs() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Programs before and after their fix, by the pair's name."""
    from pairs import (
        collectives,
        copies,
        fourth,
        late,
        launches,
        nothing,
        pieces,
        reads,
        sidework,
        streams,
        syncs,
        transfers,
    )

    return {
        "clip_item": (lambda: syncs.Clipping(read=True), lambda: syncs.Clipping(read=False)),
        "mask_dispatch": (lambda: syncs.Dispatcher(fixed=False), lambda: syncs.Dispatcher(fixed=True)),
        "accumulate_loss": (lambda: syncs.Accumulation(read=True), lambda: syncs.Accumulation(read=False)),
        "eval_metrics": (lambda: syncs.Evaluation(read=True), lambda: syncs.Evaluation(read=False)),
        "layer_timer": (lambda: syncs.TimedLayers(timed=True), lambda: syncs.TimedLayers(timed=False)),
        "token_counts": (lambda: syncs.TokenCounts(fixed=False), lambda: syncs.TokenCounts(fixed=True)),
        "images_pin": (lambda: copies.Images(pinned=False), lambda: copies.Images(pinned=True)),
        "sparse_pin": (lambda: copies.SparseBatch(pinned=False), lambda: copies.SparseBatch(pinned=True)),
        "embeddings_pin": (lambda: copies.Embeddings(pinned=False), lambda: copies.Embeddings(pinned=True)),
        "tokenize_late": (lambda: late.Tokenizer(cached=False), lambda: late.Tokenizer(cached=True)),
        "writer_late": (lambda: late.MetricsWriter(write=True), lambda: late.MetricsWriter(write=False)),
        "reduce_head": (
            lambda: collectives.MaskedLanguageModel(beside=False),
            lambda: collectives.MaskedLanguageModel(beside=True),
        ),
        "gather_items": (lambda: collectives.TwoTowers(beside=False), lambda: collectives.TwoTowers(beside=True)),
        "halo_exchange": (lambda: collectives.Graph(beside=False), lambda: collectives.Graph(beside=True)),
        "audio_images": (lambda: streams.AudioAndImages(beside=False), lambda: streams.AudioAndImages(beside=True)),
        "offload_prefetch": (
            lambda: streams.OffloadedWeights(beside=False),
            lambda: streams.OffloadedWeights(beside=True),
        ),
        "snapshot_wait": (lambda: streams.Snapshot(wait=True), lambda: streams.Snapshot(wait=False)),
        "cache_wait": (lambda: streams.RestoredCache(first="wait"), lambda: streams.RestoredCache(first="project")),
        "ema_wait": (lambda: streams.Average(first="wait"), lambda: streams.Average(first="ema")),
        "denoise_graph": (lambda: launches.Sampler(graph=False), lambda: launches.Sampler(graph=True)),
        "adamw_fused": (lambda: launches.SmallParameters(fused=False), lambda: launches.SmallParameters(fused=True)),
        "shuffle_split": (lambda: pieces.Shuffle(split=False), lambda: pieces.Shuffle(split=True)),
        "compress_split": (lambda: pieces.Compression(split=False), lambda: pieces.Compression(split=True)),
        "host_bound": (lambda: nothing.HostBound(beside=False), lambda: nothing.HostBound(beside=True)),
        "feed_bound": (lambda: nothing.FeedBound(beside=False), lambda: nothing.FeedBound(beside=True)),
        "ppo_kl": (lambda: reads.PolicyUpdate(read=True), lambda: reads.PolicyUpdate(read=False)),
        "unique_nodes": (lambda: reads.SampledGraph(fixed=False), lambda: reads.SampledGraph(fixed=True)),
        "draft_equal": (lambda: reads.SpeculativeDecoder(check=True), lambda: reads.SpeculativeDecoder(check=False)),
        "priorities_numpy": (
            lambda: reads.PrioritizedReplay(read=True),
            lambda: reads.PrioritizedReplay(read=False),
        ),
        "tiles_sync": (lambda: reads.Tiles(wait=True), lambda: reads.Tiles(wait=False)),
        "graph_pin": (lambda: transfers.GraphBatches(pinned=False), lambda: transfers.GraphBatches(pinned=True)),
        "audio_pin": (lambda: transfers.Transcription(pinned=False), lambda: transfers.Transcription(pinned=True)),
        "logits_pin": (lambda: transfers.TeacherCache(pinned=False), lambda: transfers.TeacherCache(pinned=True)),
        "shard_pin": (
            lambda: transfers.RollingCheckpoint(pinned=False),
            lambda: transfers.RollingCheckpoint(pinned=True),
        ),
        "percentile_stream": (lambda: sidework.Scans(beside=False), lambda: sidework.Scans(beside=True)),
        "offload_stream": (
            lambda: sidework.OffloadedActivations(beside=False),
            lambda: sidework.OffloadedActivations(beside=True),
        ),
        "anchors_stream": (lambda: sidework.Continual(beside=False), lambda: sidework.Continual(beside=True)),
        "sinkhorn_graph": (lambda: launches.Sinkhorn(graph=False), lambda: launches.Sinkhorn(graph=True)),
        "augment_batch": (lambda: launches.Augmentation(batched=False), lambda: launches.Augmentation(batched=True)),
        "detokenize_wait": (lambda: sidework.Serving(first="detokenize"), lambda: sidework.Serving(first="prefill")),
        "rollout_wait": (lambda: sidework.Rollouts(first="wait"), lambda: sidework.Rollouts(first="critic")),
        "overflow_check": (lambda: fourth.ScaledLoss(read=True), lambda: fourth.ScaledLoss(read=False)),
        "regulate_length": (lambda: fourth.Speech(known=False), lambda: fourth.Speech(known=True)),
        "points_pin": (lambda: fourth.PointClouds(pinned=False), lambda: fourth.PointClouds(pinned=True)),
        "render_pin": (lambda: fourth.Renderer(pinned=False), lambda: fourth.Renderer(pinned=True)),
        "reduce_discriminator": (lambda: fourth.Discriminator(beside=False), lambda: fourth.Discriminator(beside=True)),
        "broadcast_teacher": (
            lambda: fourth.OnlineDistillation(beside=False),
            lambda: fourth.OnlineDistillation(beside=True),
        ),
        "keys_split": (lambda: fourth.LongContext(split=False), lambda: fourth.LongContext(split=True)),
        "packing_late": (lambda: fourth.Packing(ahead=False), lambda: fourth.Packing(ahead=True)),
        "sums_stream": (lambda: fourth.Market(beside=False), lambda: fourth.Market(beside=True)),
        "index_prefetch": (lambda: fourth.Retrieval(beside=False), lambda: fourth.Retrieval(beside=True)),
        "gradients_graph": (lambda: fourth.NaturalGradient(graph=False), lambda: fourth.NaturalGradient(graph=True)),
        "expert_wait": (lambda: fourth.SharedExpert(first="wait"), lambda: fourth.SharedExpert(first="share")),
    }


def all_failed(folder: Path, name: str, rank: int, ranks: int) -> bool:
    """Whether a pair failed on all ranks alike, which then can go on with the next."""
    (folder / f"{name}.failed{rank}").touch()
    until = time.monotonic() + TOGETHER_S
    while time.monotonic() < until:
        if all((folder / f"{name}.failed{other}").exists() for other in range(ranks)):
            return True
        time.sleep(0.05)
    return False


def rank_of(folder: Path, names: list[str]) -> None:
    """Time and capture these pairs, as one of the ranks."""
    import torch
    import torch.distributed as dist
    from pairs.machinery import capture_pair, join_ranks

    device = join_ranks()
    rank, ranks, known = dist.get_rank(), dist.get_world_size(), pairs()
    if rank == 0:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        print(torch.__version__, "NCCL", nccl, torch.cuda.get_device_name(), os.environ.get("NCCL_NVLS_ENABLE"))
    for name in names:
        begin = time.monotonic()
        if rank == 0:
            (folder / f"{name}.begun").touch()
        try:
            capture_pair(name, known[name], device, folder, steps=8)
        except Exception:
            traceback.print_exc()
            torch.cuda.synchronize()  # raises if the GPU can do no more for this process
            if not all_failed(folder, name, rank, ranks):
                os._exit(1)
            continue
        if rank == 0:
            (folder / f"{name}.done").touch()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        torch.cuda.empty_cache()
    dist.destroy_process_group()


class Packed:
    """Traces and times of what is done, in archives that are small enough to be fetched one by one."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out
        self.parts: list[list[Path]] = [[]]
        self.names: set[str] = set()

    def add(self) -> bool:
        """Pack what has come to be done; whether there was any."""
        fresh = [done.stem for done in sorted(self.folder.glob("*.done")) if done.stem not in self.names]
        for name in fresh:
            traces = sorted(self.folder.glob(f"{name}_*.json.gz"))
            if self.parts[-1] and sum(path.stat().st_size for path in [*self.parts[-1], *traces]) > PART_BYTES:
                self.parts.append([])
            self.parts[-1] += traces
            self.names.add(name)
            self.write_last()
        if fresh:
            times = self.folder / "step_time_ms.json"
            (self.out / times.name).write_text(times.read_text())
        return bool(fresh)

    def write_last(self) -> None:
        archive = self.out / f"traces-{len(self.parts)}.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as file:
            for path in self.parts[-1]:
                file.add(path, path.name)


def torchrun(folder: Path, names: list[str], log: Path, packed: Packed, until: float) -> int | None:
    """Run these pairs, packing what is done; the exit code, None where nothing came for too long."""
    port = str(PORT + len(names))  # another one each time, as fewer are left
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", os.environ.get("TRACEVIZ_RANKS", "2")]
    command += ["--master-addr", "127.0.0.1", "--master-port", port, __file__, "--ranks", str(folder), *names]
    with log.open("a") as text:
        process = subprocess.Popen(command, stdout=text, stderr=subprocess.STDOUT)
    quiet_since = time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        now = time.monotonic()
        if packed.add():
            quiet_since = now
        if now - quiet_since > QUIET_S or now > until:
            _end(process)
            return None
    packed.add()
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def left_of(names: list[str], folder: Path) -> Iterator[str]:
    """Pairs that were not begun, those whose process ended behind them included."""
    return (name for name in names if not (folder / f"{name}.begun").exists())


def capture_all(out: Path, names: list[str]) -> None:
    """Capture pairs, in a process of both ranks; in a new one behind a pair that broke it."""
    folder = Path(os.environ.get("TRACEVIZ_PAIRS", "/tmp/further-pairs"))
    folder.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    log, packed, until = out / "log.txt", Packed(folder, out), time.monotonic() + LIMIT_S
    log.touch()
    left = list(names)
    while left and time.monotonic() < until:
        code = torchrun(folder, left, log, packed, until)
        following = list(left_of(left, folder))
        if following == left:
            print(f"nothing was begun (exit code {code})")
            break
        left = following
    missing = [name for name in names if name not in packed.names]
    print((out / "log.txt").read_text()[-6000:])
    print(f"{len(packed.names)} of {len(names)} pairs; missing: {', '.join(missing) or 'none'}")
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB {path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", action="store_true", help="be one of the ranks")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="PAIR")
    given = parser.parse_args()
    if given.ranks:
        rank_of(given.folder, given.names)
    else:
        capture_all(given.folder, given.names or list(pairs()))


if __name__ == "__main__":
    main()
