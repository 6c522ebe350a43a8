// The inner kernels of one instruction set: compiled once for each, with its compiler flags and
// JAX_TRANSPOSE_ISA set to its name.
#include "cpu/interleave.h"
#include "cpu/kernel_table.h"
#include "cpu/row_copies.h"
#include "cpu/tiles.h"

#define JT_STRING_OF(x) #x
#define JT_STRING(x) JT_STRING_OF(x)

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

extern const KernelTable kTable;
const KernelTable kTable = {
    JT_STRING(JAX_TRANSPOSE_ISA),
    16 * kLanes,
    {TilePlanes<1, false>, TilePlanes<2, false>, TilePlanes<4, false>, TilePlanes<8, false>,
     TilePlanes<16, false>},
    {TilePlanes<1, true>, TilePlanes<2, true>, TilePlanes<4, true>, TilePlanes<8, true>,
     TilePlanes<16, true>},
    {InterleavePlanes<1>, InterleavePlanes<2>, InterleavePlanes<4>, InterleavePlanes<8>,
     TilePlanes<16, false>},
    Rows,
    RowsStreaming,
    Stream,
    Fence,
};

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
