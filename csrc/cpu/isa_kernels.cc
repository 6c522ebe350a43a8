// The inner kernels of one instruction set: compiled once for each, with its compiler flags and
// JAX_TRANSPOSE_ISA set to its name.
#include "cpu/grouped.h"
#include "cpu/interleave.h"
#include "cpu/kernel_table.h"
#include "cpu/row_copies.h"
#include "cpu/shifted.h"
#include "cpu/swap.h"
#include "cpu/tiles.h"

#define JT_STRING_OF(x) #x
#define JT_STRING(x) JT_STRING_OF(x)

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

extern const KernelTable kTable;
const KernelTable kTable = {
    JT_STRING(JAX_TRANSPOSE_ISA),
    16 * kLanes,
    {TilePlanes<1, Mode::kCached>, TilePlanes<2, Mode::kCached>, TilePlanes<4, Mode::kCached>,
     TilePlanes<8, Mode::kCached>, TilePlanes<16, Mode::kCached>},
    {TilePlanes<1, Mode::kAhead>, TilePlanes<2, Mode::kAhead>, TilePlanes<4, Mode::kAhead>,
     TilePlanes<8, Mode::kAhead>, TilePlanes<16, Mode::kAhead>},
    {TilePlanes<1, Mode::kStreaming>, TilePlanes<2, Mode::kStreaming>,
     TilePlanes<4, Mode::kStreaming>, TilePlanes<8, Mode::kStreaming>,
     TilePlanes<16, Mode::kStreaming>},
    {ShiftedPlanes<1>, ShiftedPlanes<2>, ShiftedPlanes<4>, ShiftedPlanes<8>, ShiftedPlanes<16>},
    {GroupedPlanes<1, false>, GroupedPlanes<2, false>, GroupedPlanes<4, false>,
     GroupedPlanes<8, false>, GroupedPlanes<16, false>},
    {GroupedPlanes<1, true>, GroupedPlanes<2, true>, GroupedPlanes<4, true>, GroupedPlanes<8, true>,
     GroupedPlanes<16, true>},
    {InterleavePlanes<1>, InterleavePlanes<2>, InterleavePlanes<4>, InterleavePlanes<8>,
     TilePlanes<16, Mode::kCached>},
    Rows<false>,
    Rows<true>,
    RowsStreaming,
    {SwapTiles<1>, SwapTiles<2>, SwapTiles<4>, SwapTiles<8>, SwapTiles<16>},
    SwapRuns,
    Stream,
    Fence,
};

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
