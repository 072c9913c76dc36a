// Binding for mapped files: an object with the buffer protocol. Views hold the object, and the map goes with it.
#include <cerrno>

#include "python/arrays.h"
#include "plait/mapped_file.h"

namespace plait {

#ifdef PLAIT_MAPS_FILES
namespace {

class MappedFile {
  public:
    explicit MappedFile(nb::object path) {
        PyObject* encoded = nullptr;
        if (PyUnicode_FSConverter(path.ptr(), &encoded) == 0) throw nb::python_error();
        const nb::bytes name = nb::steal<nb::bytes>(encoded);
        Mapped outcome;
        int error;
        {
            const nb::gil_scoped_release unlocked;
            outcome = map_file(name.c_str(), map_);
            error = errno;
        }
        if (outcome == Mapped::kFine) return;
        if (outcome == Mapped::kNotRegular) throw nb::value_error("not a regular file");
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
        throw nb::python_error();
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile() { unmap_file(map_); }

    const FileMap& map() const noexcept { return map_; }

  private:
    FileMap map_{};
};

int fill_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
    const FileMap& map = nb::inst_ptr<MappedFile>(nb::handle(self))->map();
    static unsigned char nothing = 0;
    void* data = map.data == nullptr ? &nothing : const_cast<unsigned char*>(map.data);
    return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(map.n_bytes), 1, flags);
}

PyType_Slot mapped_file_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(fill_buffer)}, {0, nullptr}};

}  // namespace

void bind_mapped_file(nb::module_& module) {
    nb::class_<MappedFile>(module, "MappedFile", nb::type_slots(mapped_file_slots), nb::is_final())
        .def(nb::init<nb::object>(), nb::arg("path"))
        .def_prop_ro("identity",
                     [](const MappedFile& file) {
                         const FileIdentity& identity = file.map().identity;
                         return nb::make_tuple(identity.device, identity.inode, identity.modified_ns);
                     })
        .def("__len__", [](const MappedFile& file) { return file.map().n_bytes; })
        .def(
            "release",
            [](const MappedFile& file, std::size_t offset, std::size_t n_bytes) {
                release_pages(file.map(), offset, n_bytes);
            },
            nb::arg("offset"), nb::arg("n_bytes"));
}
#else
void bind_mapped_file(nb::module_&) {}
#endif

}  // namespace plait
