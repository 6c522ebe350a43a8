#include "cpu/block_walk.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace jax_transpose::cpu {
namespace {

constexpr int64_t kLine = 64;
// How far along a row of the input the next lines are asked for, in bytes.
constexpr int64_t kAhead = 256;
// A block is extended to the output's lines where that adds at most one part in this many.
constexpr int64_t kMoreShare = 6;

int Log2(int64_t width) {
  int log = 0;
  while (width > 1) width /= 2, ++log;
  return log;
}

// An interleaved plan never keeps the minor dimension.
bool UsesInterleave(const Plan& plan) {
  return plan.kind == Kind::kInterleave && CpuInterleaves(plan.permutation);
}

PlanesKernel PickKernel(const CpuBlocks& b, const Plan& plan, const KernelTable& kernels) {
  const int log = Log2(b.element);
  const bool kept = plan.permutation.keeps_minor();
  if (UsesInterleave(plan)) return kernels.interleave[log];
  if (b.grouped) {
    return b.store == Store::kStaged ? kernels.grouped_ahead[log] : kernels.grouped[log];
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
  Walk(const CpuBlocks& blocks, const Plan& plan, const KernelTable& kernels)
      : b_(blocks), kernel_(PickKernel(blocks, plan, kernels)), kernels_(kernels) {
    asks_ = !UsesInterleave(plan);
    for (int i = b_.rank - b_.row_dims; i < b_.rank; ++i) in_group_[b_.order_out[i]] = true;
    for (int d = b_.rank - b_.col_dims; d < b_.rank; ++d) in_group_[d] = true;
  }

  void Run(const char* in, int64_t bytes, char* out, int64_t first, int64_t last) {
    in_end_ = in + bytes;
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
    planes.rows = b_.grouped ? static_cast<int64_t>(row_at_.size()) : size_[b_.row];
    planes.cols = b_.grouped ? static_cast<int64_t>(col_at_.size()) : size_[b_.col];
    planes.row_at = row_at_.data();
    planes.col_at = col_at_.data();
    planes.in_end = in_end_;
    planes.ahead_at = lines_.data();
    planes.ahead_lines = ToNextBlock() == 0 ? 0 : static_cast<int64_t>(lines_.size());
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
    for (int d = 0; d < b_.rank; ++d) {
      if (in_group_[d] || size_[d] == 1) continue;
      if (stepped_ < 0 || size_[d] > size_[stepped_]) stepped_ = d;
    }
    step_ = stepped_ < 0 ? Offset{0, 0} : Offset{b_.dim[stepped_].in, stride_[stepped_]};
    starts_.assign(1, {0, 0});
    for (int d = b_.rank - 1; d >= 0; --d) {
      if (in_group_[d] || d == stepped_) continue;
      Spread(size_[d], Offset{b_.dim[d].in, stride_[d]}, &starts_);
    }
    if (b_.grouped) {
      row_at_.assign(1, 0);
      for (int i = b_.rank - 1; i >= b_.rank - b_.row_dims; --i) {
        const int d = b_.order_out[i];
        Spread(size_[d], b_.dim[d].in, &row_at_);
      }
      col_at_.assign(1, 0);
      for (int d = b_.rank - 1; d >= b_.rank - b_.col_dims; --d) {
        Spread(size_[d], stride_[d], &col_at_);
      }
    }
    if (b_.store == Store::kStaged && (b_.grouped || !asks_)) PlanLines();
  }

  // Lists the lines of a block's input, for the next block's to be asked for.
  void PlanLines() {
    int64_t run = b_.element;
    int d = b_.rank - 1;
    for (bool whole = true; d >= 0 && whole; --d) {
      run *= size_[d];
      whole = size_[d] == b_.dim[d].extent;
    }
    lines_.clear();
    for (int64_t at = 0; at < run; at += kLine) lines_.push_back(at);
    if (run % kLine != 0) lines_.push_back(run - 1);
    for (; d >= 0; --d) Spread(size_[d], b_.dim[d].in, &lines_);
  }

  // Repeats `offsets` at 0, `stride`, ... (size - 1) * `stride`.
  static void Spread(int64_t size, Offset stride, std::vector<Offset>* offsets) {
    const size_t count = offsets->size();
    offsets->resize(count * size);
    for (size_t k = count; k < offsets->size(); ++k) {
      const Offset before = (*offsets)[k - count];
      (*offsets)[k] = {before.in + stride.in, before.out + stride.out};
    }
  }
  static void Spread(int64_t size, ptrdiff_t stride, std::vector<ptrdiff_t>* offsets) {
    const size_t count = offsets->size();
    offsets->resize(count * size);
    for (size_t k = count; k < offsets->size(); ++k) {
      (*offsets)[k] = (*offsets)[k - count] + stride;
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
      const int64_t more = (kLine + run - 1) / run;
      share = run * size_[cut];
      // Where a line's worth is too much, ragged ends cost less.
      if (more * kMoreShare <= b_.dim[cut].block) {
        starts = at_[cut] == 0;
        ends = left == 0;
        size_[cut] += std::min(left, more);
      }
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
    int64_t runs = 1, run_at = 0, asked = 0;
    for (int k = 0; k < outer; ++k) runs *= size_[b_.order_out[k]];
    const char* next = in + ToNextBlock();
    const int64_t lines = asks_ || next == in ? 0 : static_cast<int64_t>(lines_.size());
    int64_t position[kMaxRank] = {};
    for (;;) {
      for (const int64_t end = lines * ++run_at / runs; asked < end; ++asked) {
        __builtin_prefetch(next + lines_[asked], 0, 2);
      }
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
  bool in_group_[kMaxRank] = {};
  int stepped_ = -1;
  Offset step_;
  std::vector<Offset> starts_;
  std::vector<ptrdiff_t> row_at_, col_at_, lines_;
  const char* in_end_ = nullptr;
  bool asks_;  // whether the kernel asks for the next block's input
};

}  // namespace

void RunBlocks(const CpuBlocks& blocks, const Plan& plan, const KernelTable& kernels,
               const char* in, char* out, int64_t first, int64_t last) {
  if (first >= last) return;
  Walk(blocks, plan, kernels).Run(in, plan.permutation.bytes(), out, first, last);
  // Streaming stores are ordered by nothing else.
  if (blocks.store != Store::kCached) kernels.fence();
}

}  // namespace jax_transpose::cpu
