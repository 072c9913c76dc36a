// The Python module. Only the files of this folder use Python. Each binding states the type, rank and order of its
// arrays, converts nothing, releases the interpreter lock, checks everything that could make a kernel read or write out
// of bounds, and calls one kernel.
//
// A wrong type is a TypeError and a wrong value a ValueError. plait.scoring checks most arguments before, with better
// messages.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "python/arrays.h"
#include "plait/crc32c.h"
#include "dispatch/dispatch.h"
#include "plait/like.h"
#include "plait/topk.h"
#ifdef PLAIT_AMX
#include "dispatch/child_probe_cases.h"
#endif

namespace plait {
// A stored float16. Kernels decode it; nothing computes with it.
struct Half {
    std::uint16_t bits;
};
}  // namespace plait

namespace nanobind::detail {
template <>
struct dtype_traits<plait::Half> {
    static constexpr dlpack::dtype value{static_cast<std::uint8_t>(dlpack::dtype_code::Float), 16, 1};
    static constexpr auto name = const_name("float16");
};
}  // namespace nanobind::detail

namespace plait {
namespace {

template <class Q, class R>
void require_shapes(const Q& query, const R& rows) {
    require(query.shape(0) > 0 && query.shape(1) > 0, "the query must have at least one row and one dimension");
    require(query.shape(1) == rows.shape(1), "the query has " + std::to_string(query.shape(1)) +
                                                 " dimensions and the rows have " + std::to_string(rows.shape(1)));
}

template <class T>
constexpr bool kIsFloat32 = sizeof(T) == sizeof(float);

using Query = Array<const float, 2>;
using Offsets = Array<const std::int64_t, 1>;

template <class T>
void run_maxsim(const Query& query, const Array<const T, 2>& rows, const std::int64_t* begins, const std::int64_t* ends,
                std::size_t n_docs, float* scores) {
    const MaxSimKernels& kernels = *current_target().maxsim;
    std::vector<float> workspace(kernels.workspace(query.shape(0), query.shape(1)));
    const MaxSim kernel = kIsFloat32<T> ? kernels.maxsim_f32 : kernels.maxsim_f16;
    kernel(bytes_of(query), query.shape(0), bytes_of(rows), begins, ends, n_docs, query.shape(1), workspace.data(),
           scores);
}

template <class T>
void maxsim(Query query, Array<const T, 2> rows, Offsets offsets, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    require_shapes(query, rows);
    require(offsets.shape(0) > 0, "offsets is empty; it needs one value for each document, and one more");
    const std::size_t n_docs = offsets.shape(0) - 1;
    float* out = output_of(scores, n_docs, "scores");
    const std::vector<std::int64_t> bounds = copy_of(offsets);
    for (std::size_t doc = 0; doc < n_docs; ++doc) {
        require_range(bounds[doc], bounds[doc + 1], rows.shape(0), static_cast<std::int64_t>(doc));
    }
    run_maxsim<T>(query, rows, bounds.data(), bounds.data() + 1, n_docs, out);
}

template <class T>
void maxsim_items(Query query, Array<const T, 2> rows, Offsets offsets, Array<const std::int64_t, 1> items,
                  Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    require_shapes(query, rows);
    require(offsets.shape(0) > 0, "offsets is empty; it needs one value for each document, and one more");
    const std::size_t n_docs = offsets.shape(0) - 1;
    float* out = output_of(scores, items.shape(0), "scores");
    const std::vector<std::int64_t> chosen = copy_of(items);
    std::vector<std::int64_t> begins(chosen.size());
    std::vector<std::int64_t> ends(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        require(0 <= chosen[i] && static_cast<std::uint64_t>(chosen[i]) < n_docs,
                "item " + std::to_string(chosen[i]) + " of " + std::to_string(n_docs));
        Bytes at = bytes_of(offsets) + static_cast<std::size_t>(chosen[i]) * sizeof(std::int64_t);
        std::memcpy(&begins[i], at, sizeof(std::int64_t));
        std::memcpy(&ends[i], at + sizeof(std::int64_t), sizeof(std::int64_t));
        require_range(begins[i], ends[i], rows.shape(0), chosen[i]);
    }
    run_maxsim<T>(query, rows, begins.data(), ends.data(), chosen.size(), out);
}

template <class T>
void align(Query query, Array<const T, 2> rows, Array<std::int64_t, 1> best_rows, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    require_shapes(query, rows);
    std::int64_t* best = output_of(best_rows, query.shape(0), "best_rows");
    float* out = output_of(scores, query.shape(0), "scores");
    const MaxSimKernels& kernels = *current_target().maxsim;
    std::vector<float> workspace(kernels.workspace(query.shape(0), query.shape(1)));
    const Align kernel = kIsFloat32<T> ? kernels.align_f32 : kernels.align_f16;
    kernel(bytes_of(query), query.shape(0), bytes_of(rows), rows.shape(0), query.shape(1), workspace.data(), best, out);
}

template <class T>
void top_k_of(Array<const T, 1> scores, Array<std::int64_t, 1> best) {
    const nb::gil_scoped_release unlocked;
    require(best.shape(0) <= scores.shape(0), "best has room for " + std::to_string(best.shape(0)) +
                                                  " positions; there are " + std::to_string(scores.shape(0)) +
                                                  " scores");
    top_k(aligned_data(scores, "scores"), scores.shape(0), best.shape(0), output_of(best, best.shape(0), "best"));
}

// The bytes of any contiguous buffer. Holds it, so that a mapped file cannot be closed during a checksum.
class Buffer {
  public:
    explicit Buffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }

    Bytes bytes() const noexcept { return static_cast<Bytes>(view_.buf); }
    std::size_t size() const noexcept { return static_cast<std::size_t>(view_.len); }

  private:
    Py_buffer view_{};
};

std::uint32_t crc32c_of(nb::handle data, std::uint32_t seed) {
    const Buffer buffer(data);
    const nb::gil_scoped_release unlocked;
    return current_target().crc32c(buffer.bytes(), buffer.size(), seed);
}

void crc32c_blocks_of(nb::handle data, std::size_t block_size, Array<std::uint32_t, 1> checksums) {
    const Buffer buffer(data);
    const nb::gil_scoped_release unlocked;
    require(block_size > 0, "block_size is 0; it must be at least 1");
    const std::size_t n_blocks = buffer.size() / block_size + (buffer.size() % block_size != 0 ? 1 : 0);
    crc32c_blocks(current_target().crc32c, buffer.bytes(), buffer.size(), block_size,
                  output_of(checksums, n_blocks, "checksums"));
}

// The UTF-8 of a string, which the string keeps.
struct Utf8 {
    explicit Utf8(const nb::str& text) {
        Py_ssize_t size = 0;
        const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
        if (data == nullptr) throw nb::python_error();
        bytes = reinterpret_cast<Bytes>(data);
        n_bytes = static_cast<std::size_t>(size);
    }
    Bytes bytes;
    std::size_t n_bytes;
};

bool like_of(const nb::str& pattern, const nb::str& text) {
    const Utf8 wanted(pattern), given(text);
    const nb::gil_scoped_release unlocked;
    std::vector<std::uint64_t> workspace(like_workspace(wanted.bytes, wanted.n_bytes));
    return like_matches(wanted.bytes, wanted.n_bytes, given.bytes, given.n_bytes, workspace.data());
}

// The environment variable is wrong, not an array: a ConfigError.
void translate_unknown_target(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const UnknownTarget& error) {
        std::string message = std::string(kTargetVariable) + " is \"" + error.target + "\"; this machine has ";
        std::size_t n_targets = 0;
        const Target* const* targets = available_targets(n_targets);
        for (std::size_t i = 0; i < n_targets; ++i) message.append(i == 0 ? "" : ", ").append(targets[i]->name);
        message += ". Set it to one of these, or unset it to use the best";
        PyErr_SetString(nb::module_::import_("plait.errors").attr("ConfigError").ptr(), message.c_str());
    }
}

std::vector<std::string> target_names() {
    std::size_t n_targets = 0;
    const Target* const* targets = available_targets(n_targets);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < n_targets; ++i) names.emplace_back(targets[i]->name);
    return names;
}

template <class T>
void bind_rows_of(nb::module_& module) {
    module.def("maxsim", maxsim<T>, nb::arg("query").noconvert(), nb::arg("rows").noconvert(),
               nb::arg("offsets").noconvert(), nb::arg("scores").noconvert());
    module.def("maxsim_items", maxsim_items<T>, nb::arg("query").noconvert(), nb::arg("rows").noconvert(),
               nb::arg("offsets").noconvert(), nb::arg("items").noconvert(), nb::arg("scores").noconvert());
    module.def("align", align<T>, nb::arg("query").noconvert(), nb::arg("rows").noconvert(),
               nb::arg("best_rows").noconvert(), nb::arg("scores").noconvert());
}

#ifdef PLAIT_AMX
// For tests: the outcome of run_in_child for the named case.
std::string probe_outcome(const std::string& name, unsigned milliseconds) {
    for (const ProbeCase& known : kProbeCases) {
        if (name == known.name) return name_of(run_in_child(known.work, milliseconds));
    }
    throw std::invalid_argument("unknown case " + name);
}
#endif

}  // namespace
}  // namespace plait

NB_MODULE(_core, module) {
    using namespace plait;
    module.doc() = "Kernels over arrays, and mapped files. Use plait.scoring, which checks their arguments.";
    nb::set_leak_warnings(false);  // an index that is open when Python ends is no leak
    bind_rows_of<float>(module);
    bind_rows_of<Half>(module);
    bind_rows_of<std::uint16_t>(module);  // float16 values as raw words
    module.def("top_k", top_k_of<float>, nb::arg("scores").noconvert(), nb::arg("best").noconvert());
    module.def("top_k", top_k_of<std::uint32_t>, nb::arg("scores").noconvert(), nb::arg("best").noconvert());
    module.def("top_k", top_k_of<std::int32_t>, nb::arg("scores").noconvert(), nb::arg("best").noconvert());
    module.def("crc32c", crc32c_of, nb::arg("data"), nb::arg("seed") = 0);
    module.def("crc32c_blocks", crc32c_blocks_of, nb::arg("data"), nb::arg("block_size"),
               nb::arg("checksums").noconvert());
    module.def("like", like_of, nb::arg("pattern"), nb::arg("text"));
    bind_residual(module);
    bind_build(module);
    bind_tokens(module);
    bind_sparse(module);
    bind_dense(module);
    bind_mapped_file(module);
    nb::register_exception_translator(translate_unknown_target);
    module.def("available_targets", target_names);
    module.def("current_target", [] { return std::string(current_target().name); });
    module.def("use_target", [](const std::string& name) { return use_target(name); }, nb::arg("name"));
#ifdef PLAIT_AMX
    module.def("probe_outcome", probe_outcome, nb::arg("case"), nb::arg("milliseconds"));
#endif
}
