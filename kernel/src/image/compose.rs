//! The probes of a node to its one document.

use super::builder::Builder;
use super::recall::Recall;
use super::store::{ElementId, Store};
use crate::error::{DocumentRefused, PutError};
use crate::xml;

/// The probe whose root is the document's.
const MAIN: &str = "lshw";

/// Parses and interns the probes of a node. `lshw` gives the root as it is; every other probe's
/// root becomes a child of it, with its elements that are in no namespace moved to the namespace
/// that bears the probe's name.
pub fn compose(
    store: &mut Store,
    recall: &mut Recall,
    probes: &[(&str, &[u8])],
) -> Result<ElementId, PutError> {
    let Some(&(_, main)) = probes.iter().find(|(name, _)| *name == MAIN) else {
        let reason = format!("a document needs the {MAIN} probe");
        let error = DocumentRefused { reason, line: 1, column: 1 };
        return Err(PutError::Document(MAIN.into(), error));
    };
    let mut builder = Builder::new(store, recall);
    read(&mut builder, MAIN, main)?;
    for &(name, bytes) in probes.iter().filter(|(name, _)| *name != MAIN) {
        builder.probe = Some(name.to_owned());
        read(&mut builder, name, bytes)?;
    }
    Ok(builder.finish()?)
}

fn read(builder: &mut Builder<'_>, name: &str, bytes: &[u8]) -> Result<(), PutError> {
    let text = xml::decode(bytes).map_err(|error| PutError::Document(name.to_owned(), error))?;
    xml::parse(&text, builder).map_err(|error| error.of(name))
}
