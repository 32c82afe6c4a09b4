//! The Python module `tagmill_kernel`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use pyo3::{create_exception, wrap_pyfunction};

use crate::budget::Budget;
use crate::error::{self, PutError};
use crate::{image, plan, vocabulary, xml, xpath};

create_exception!(tagmill_kernel, KernelError, PyException, "The root of the kernel's errors.");
create_exception!(tagmill_kernel, ImageError, KernelError, "A file or partition cannot be used.");
create_exception!(
    tagmill_kernel,
    DocumentRefused,
    KernelError,
    "XML is refused. Arguments: message, probe, line, column."
);
create_exception!(
    tagmill_kernel,
    KernelRefused,
    KernelError,
    "The kernel leaves an expression to lxml. Arguments: reason, column (from 1)."
);
create_exception!(tagmill_kernel, BudgetExceeded, KernelError, "An evaluation ran past its steps.");

impl From<error::ImageError> for PyErr {
    fn from(error: error::ImageError) -> Self {
        ImageError::new_err(error.to_string())
    }
}

impl From<PutError> for PyErr {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Image(error) => error.into(),
            PutError::Document(probe, error) => {
                DocumentRefused::new_err((error.reason, probe, error.line, error.column))
            }
        }
    }
}

/// A compiled expression.
#[pyclass(frozen, module = "tagmill_kernel")]
struct Expression(xpath::Expression);

#[pymethods]
impl Expression {
    #[new]
    #[pyo3(signature = (text, namespaces=None))]
    fn new(text: &str, namespaces: Option<HashMap<String, String>>) -> PyResult<Self> {
        xpath::Expression::new(text, &namespaces.unwrap_or_default())
            .map(Expression)
            .map_err(|error| KernelRefused::new_err((error.reason, error.column)))
    }

    #[getter]
    fn text(&self) -> &str {
        self.0.text()
    }

    #[getter]
    fn explain(&self) -> String {
        plan::explain(&self.0)
    }

    fn __repr__(&self) -> String {
        format!("Expression({:?})", self.0.text())
    }
}

/// The documents of one partition.
#[pyclass(frozen, module = "tagmill_kernel")]
#[derive(Default)]
struct PartitionImage(RwLock<image::PartitionImage>);

impl PartitionImage {
    // A poisoned lock means a panic while reading: rows never change, so the image is still whole.
    fn read(&self) -> RwLockReadGuard<'_, image::PartitionImage> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, image::PartitionImage> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PartitionImage {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Puts a node's probes into a slot.
    fn put(&self, py: Python<'_>, slot: u32, probes: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut owned: Vec<(String, Vec<u8>)> = Vec::with_capacity(probes.len());
        for (name, document) in probes.iter() {
            owned.push((name.extract()?, document_bytes(&document)?));
        }
        py.detach(|| {
            let probes: Vec<(&str, &[u8])> =
                owned.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
            self.write().put(slot, &probes).map_err(PyErr::from)
        })
    }

    /// Empties a slot; false when it was empty.
    fn remove(&self, py: Python<'_>, slot: u32) -> bool {
        py.detach(|| self.write().remove(slot))
    }

    /// The occupied slots, ascending.
    fn slots(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.read().slots().map(|(slot, _)| slot).collect())
    }

    /// Bytes in memory.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().nbytes())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.read().len())
    }

    /// Writes the image to a file.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.read().save(&path).map_err(PyErr::from))
    }

    /// Reads an image from a file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| Ok(PartitionImage(RwLock::new(image::PartitionImage::open(&path)?))))
    }

    /// Evaluates expressions; see the stub for the contract.
    #[pyo3(signature = (expressions, slots=None, budget_steps=u64::MAX))]
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        expressions: Vec<Py<Expression>>,
        slots: Option<&[u8]>,
        budget_steps: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        let compiled: Vec<&xpath::Expression> = expressions.iter().map(|e| &e.get().0).collect();
        let results = py.detach(|| {
            let image = self.read();
            let asked = plan::Asked::new(&image, slots);
            let evaluate = |expression: &&xpath::Expression| {
                asked.evaluate(expression, &Budget::new(budget_steps))
            };
            compiled.iter().map(evaluate).collect::<Vec<_>>()
        });
        let list = PyList::empty(py);
        for result in results {
            match result {
                Ok(members) => list.append(PyBytes::new(py, &members))?,
                Err(error) => list.append(BudgetExceeded::new_err(error.to_string()).value(py))?,
            }
        }
        Ok(list)
    }

    /// What the documents contain; see the stub for the contract.
    #[pyo3(signature = (max_length, slots=None))]
    fn vocabulary(
        &self,
        py: Python<'_>,
        max_length: usize,
        slots: Option<&[u8]>,
    ) -> (u32, Vec<PlaceTuple>) {
        let (documents, places) =
            py.detach(|| vocabulary::collect(&self.read(), slots, max_length));
        (documents, places.into_iter().map(place_tuple).collect())
    }
}

type ValuesTuple = (Vec<vocabulary::Counted>, bool, bool, bool);
type PlaceTuple = (String, bool, u32, u32, Vec<u32>, Vec<(String, ValuesTuple)>, ValuesTuple, bool);

fn place_tuple(place: vocabulary::Place) -> PlaceTuple {
    let values = |values: vocabulary::Values| {
        (values.kept, values.has_long, values.has_number, values.has_text)
    };
    (
        place.name,
        place.nested,
        place.documents,
        place.roots,
        place.children,
        place.attributes.into_iter().map(|(name, found)| (name, values(found))).collect(),
        values(place.text),
        place.opaque,
    )
}

/// The bytes of a probe. A `str` has no encoding: a mark makes the parser ignore the declaration.
fn document_bytes(document: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = document.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    let text =
        document.cast::<PyString>().map_err(|_| PyTypeError::new_err("a probe is bytes or str"))?;
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend_from_slice(text.to_cow()?.as_bytes());
    Ok(bytes)
}

/// Raises DocumentRefused unless `document` is well-formed.
#[pyfunction]
fn check_document(py: Python<'_>, document: &Bound<'_, PyAny>) -> PyResult<()> {
    let bytes = document_bytes(document)?;
    py.detach(|| {
        let mut image = image::PartitionImage::new();
        image.put(0, &[("lshw", &bytes)]).map_err(PyErr::from)
    })
}

/// Documents with more bytes in all are looked at without the GIL.
const LONG_BYTES: usize = 64 * 1024;

/// Which documents lxml surely accepts; see the stub for the contract.
#[pyfunction]
fn are_plain(py: Python<'_>, documents: Vec<PyBackedStr>, depth: usize) -> Vec<bool> {
    let all = || documents.iter().map(|document| xml::is_plain(document, depth)).collect();
    let bytes: usize = documents.iter().map(|document| document.len()).sum();
    if bytes > LONG_BYTES { py.detach(all) } else { all() }
}

#[pymodule]
fn tagmill_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MAX_DEPTH", xml::MAX_DEPTH)?;
    module.add("KernelError", py.get_type::<KernelError>())?;
    module.add("ImageError", py.get_type::<ImageError>())?;
    module.add("DocumentRefused", py.get_type::<DocumentRefused>())?;
    module.add("KernelRefused", py.get_type::<KernelRefused>())?;
    module.add("BudgetExceeded", py.get_type::<BudgetExceeded>())?;
    module.add_class::<Expression>()?;
    module.add_class::<PartitionImage>()?;
    module.add_function(wrap_pyfunction!(check_document, module)?)?;
    module.add_function(wrap_pyfunction!(are_plain, module)?)?;
    Ok(())
}
