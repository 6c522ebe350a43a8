#include "cpu/block_walk.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace jax_transpose::cpu {
namespace {

constexpr int64_t kLine = 64;
// How far along a row of the input the next lines are asked for, in bytes.
constexpr int64_t kAhead = 256;

int Log2(int64_t width) {
  int log = 0;
  while (width > 1) width /= 2, ++log;
  return log;
}

PlanesKernel PickKernel(const CpuBlocks& b, const Plan& plan, const KernelTable& kernels) {
  const int log = Log2(b.element);
  const bool kept = plan.permutation.keeps_minor();
  if (!kept && plan.kind == Kind::kInterleave && CpuInterleaves(plan.permutation)) {
    return kernels.interleave[log];
  }
  switch (b.store) {
    case Store::kStreaming:
      return kept ? kernels.rows_streaming : kernels.tiles_streaming[log];
    case Store::kShifted:
      return kernels.tiles_shifted[log];
    case Store::kStaged:
      return kept ? kernels.rows_ahead : kernels.tiles_ahead[log];
    default:
      return kept ? kernels.rows : kernels.tiles[log];
  }
}

// A buffer for kStaged, kept by each thread: a fresh one would fault its pages in at every call.
char* StagingBuffer(int64_t bytes) {
  thread_local std::unique_ptr<char[]> buffer;
  thread_local int64_t size = 0;
  if (size < bytes) {
    buffer.reset();
    size = 0;
    buffer.reset(new char[bytes + kLine]);
    size = bytes;
  }
  const uintptr_t at = reinterpret_cast<uintptr_t>(buffer.get());
  return reinterpret_cast<char*>((at + kLine - 1) / kLine * kLine);
}

class Walk {
 public:
  Walk(const CpuBlocks& blocks, PlanesKernel kernel, const KernelTable& kernels)
      : b_(blocks), kernel_(kernel), kernels_(kernels) {}

  void Run(const char* in, char* out, int64_t first, int64_t last) {
    int64_t rest = first;
    for (int d = b_.rank - 1; d >= 0; --d) {
      const int64_t count = (b_.dim[d].extent + b_.dim[d].block - 1) / b_.dim[d].block;
      at_[d] = rest % count * b_.dim[d].block;
      rest /= count;
      in += at_[d] * b_.dim[d].in;
      out += at_[d] * b_.dim[d].out;
    }
    for (int64_t i = first;;) {
      for (int d = 0; d < b_.rank; ++d) {
        size_[d] = std::min(b_.dim[d].block, b_.dim[d].extent - at_[d]);
      }
      if (b_.store == Store::kStaged) {
        Staged(in, out);
      } else {
        for (int d = 0; d < b_.rank; ++d) stride_[d] = b_.dim[d].out;
        Block(in, out);
      }
      if (++i == last) return;
      for (int d = b_.rank - 1; d >= 0; --d) {
        const auto& dim = b_.dim[d];
        at_[d] += dim.block;
        in += dim.block * dim.in;
        out += dim.block * dim.out;
        if (at_[d] < dim.extent) break;
        in -= at_[d] * dim.in;
        out -= at_[d] * dim.out;
        at_[d] = 0;
      }
    }
  }

 private:
  // Moves one block into an output whose strides are `stride_`.
  void Block(const char* in, char* out) {
    if (starts_.empty() || !std::equal(size_, size_ + b_.rank, planned_)) PlanStarts();
    Planes planes;
    planes.in = in;
    planes.out = out;
    planes.in_pitch = b_.dim[b_.row].in;
    planes.out_pitch = stride_[b_.col];
    planes.rows = size_[b_.row];
    planes.cols = size_[b_.col];
    planes.count = stepped_ < 0 ? 1 : size_[stepped_];
    planes.step = step_;
    planes.starts = static_cast<int64_t>(starts_.size());
    planes.start = starts_.data();
    planes.run = b_.element;
    planes.ahead = b_.store == Store::kStaged ? ToNextBlock() : kAhead;
    const int64_t left = b_.dim[b_.row].extent - at_[b_.row] - size_[b_.row];
    planes.rows_ahead = std::min(left, (kLine + b_.element - 1) / b_.element);
    planes.starts_row = at_[b_.row] == 0;
    planes.ends_row = left == 0;
    kernel_(planes);
  }

  // Bytes from this block's input to the next one's.
  int64_t ToNextBlock() const {
    int64_t distance = 0;
    for (int d = b_.rank - 1; d >= 0; --d) {
      if (at_[d] + b_.dim[d].block < b_.dim[d].extent) {
        return distance + b_.dim[d].block * b_.dim[d].in;
      }
      distance -= at_[d] * b_.dim[d].in;
    }
    return 0;
  }

  // Where a block's matrices start: the longest of the other dims is stepped over, the rest are
  // listed in input order. Blocks of one size share the list, as strides change with it only.
  void PlanStarts() {
    std::copy(size_, size_ + b_.rank, planned_);
    stepped_ = -1;
    size_t count = 1;
    for (int d = 0; d < b_.rank; ++d) {
      if (d == b_.row || d == b_.col || size_[d] == 1) continue;
      if (stepped_ < 0 || size_[d] > size_[stepped_]) stepped_ = d;
      count *= size_[d];
    }
    step_ = stepped_ < 0 ? Offset{0, 0} : Offset{b_.dim[stepped_].in, stride_[stepped_]};
    if (stepped_ >= 0) count /= size_[stepped_];
    starts_.resize(count);
    starts_[0] = {0, 0};
    size_t filled = 1;
    for (int d = b_.rank - 1; d >= 0; --d) {
      if (d == b_.row || d == b_.col || d == stepped_) continue;
      for (int64_t i = 1; i < size_[d]; ++i) {
        const Offset shift{i * b_.dim[d].in, i * stride_[d]};
        for (size_t k = 0; k < filled; ++k) {
          starts_[i * filled + k] = {starts_[k].in + shift.in, starts_[k].out + shift.out};
        }
      }
      filled *= size_[d];
    }
  }

  // Lays the block's output runs out in a buffer, then streams them. Runs are padded apart: at a
  // power-of-two pitch they would share cache sets. Where a run goes on in the next block, it is
  // cut at the end of a line of the output, for which the block takes in a line's worth more.
  void Staged(const char* in, char* out) {
    int64_t run = b_.element;
    int i = b_.rank - 1, cut = -1;
    for (; i >= 0 && cut < 0; --i) {
      const int d = b_.order_out[i];
      stride_[d] = run;
      if (b_.dim[d].block < b_.dim[d].extent) cut = d;
      if (cut < 0) run *= size_[d];
    }
    const int outer = i + 1;  // dims order_out[0 .. outer) tell the runs apart
    bool starts = true, ends = true;
    int64_t share = run;  // bytes of a run that are this block's, before the cuts are moved
    if (cut >= 0) {
      const int64_t left = b_.dim[cut].extent - at_[cut] - size_[cut];
      share = run * size_[cut];
      starts = at_[cut] == 0;
      ends = left == 0;
      size_[cut] += std::min(left, (kLine + run - 1) / run);
      run *= size_[cut];
    }
    const int64_t pitch = (run + kLine - 1) / kLine * kLine + kLine;
    int64_t bytes = pitch;
    for (; i >= 0; --i) {
      const int d = b_.order_out[i];
      stride_[d] = bytes;
      bytes *= size_[d];
    }
    char* staged = StagingBuffer(bytes);
    Block(in, staged);
    int64_t position[kMaxRank] = {};
    for (;;) {
      const int64_t from = starts ? 0 : ToLine(out);
      const int64_t to = ends ? share : std::min(run, share + ToLine(out + share));
      if (from < to) kernels_.stream(out + from, staged + from, to - from);
      for (i = outer - 1; i >= 0; --i) {
        const int d = b_.order_out[i];
        staged += stride_[d];
        out += b_.dim[d].out;
        if (++position[i] < size_[d]) break;
        staged -= position[i] * stride_[d];
        out -= position[i] * b_.dim[d].out;
        position[i] = 0;
      }
      if (i < 0) return;
    }
  }

  // Bytes from `at` to the next start of a line.
  static int64_t ToLine(const char* at) {
    return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(at) % kLine);
  }

  const CpuBlocks& b_;
  const PlanesKernel kernel_;
  const KernelTable& kernels_;
  int64_t at_[kMaxRank], size_[kMaxRank], stride_[kMaxRank];
  // What PlanStarts() found, and for which block size.
  int64_t planned_[kMaxRank];
  int stepped_ = -1;
  Offset step_;
  std::vector<Offset> starts_;
};

}  // namespace

void RunBlocks(const CpuBlocks& blocks, const Plan& plan, const KernelTable& kernels,
               const char* in, char* out, int64_t first, int64_t last) {
  if (first >= last) return;
  Walk(blocks, PickKernel(blocks, plan, kernels), kernels).Run(in, out, first, last);
  // Streaming stores are ordered by nothing else.
  if (blocks.store != Store::kCached) kernels.fence();
}

}  // namespace jax_transpose::cpu
