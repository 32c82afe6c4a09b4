//! Events of the parser to rows.

use super::recall::Recall;
use super::store::{Child, DOCUMENT, ElementId, NameId, Store};
use crate::error::{ImageError, PutError};
use crate::intern::StrId;
use crate::xml::{Attribute, QName, Sink};

struct Frame {
    name: NameId,
    start: usize,
    attributes: u32,
}

/// Collects the edges of the open elements. The document's own row is the outermost frame.
pub struct Builder<'s> {
    store: &'s mut Store,
    recall: &'s mut Recall,
    /// The element closed last, if its row was there before.
    closed: Option<ElementId>,
    edges: Vec<u32>,
    frames: Vec<Frame>,
    /// Children of the document that follow the root.
    epilog: Vec<u32>,
    root_done: bool,
    /// Set while a probe other than the first is read: the namespace it is put into.
    pub probe: Option<String>,
    recent: Vec<Option<(String, NameId)>>,
    /// The texts that are a line end and so many spaces: a third of what lshw prints.
    indents: [Option<StrId>; INDENTS],
}

/// Slots of the cache of recent names; hardware uses some sixty.
const RECENT: usize = 256;
/// The longest indent that is remembered, in bytes.
const INDENTS: usize = 64;

impl<'s> Builder<'s> {
    pub fn new(store: &'s mut Store, recall: &'s mut Recall) -> Self {
        let document = Frame { name: DOCUMENT, start: 0, attributes: 0 };
        Builder {
            store,
            recall,
            closed: None,
            edges: Vec::new(),
            frames: vec![document],
            epilog: Vec::new(),
            root_done: false,
            probe: None,
            recent: vec![None; RECENT],
            indents: [None; INDENTS],
        }
    }

    /// Closes the root, which stays open for further probes until then, and the document.
    pub fn finish(mut self) -> Result<ElementId, ImageError> {
        let root = self.frames.pop().expect("a document has a root");
        let id = self.close(root)?;
        self.edges.push(Child::Element(id).pack());
        self.edges.append(&mut self.epilog);
        let document = self.frames.pop().expect("the document's frame is the first");
        self.close(document)
    }

    fn close(&mut self, frame: Frame) -> Result<ElementId, ImageError> {
        let known = self.store.elements().len() as ElementId;
        let edges = &self.edges[frame.start..];
        let id = self.store.intern_element(frame.name, frame.attributes, edges)?;
        self.closed = Some(id).filter(|&id| id < known);
        self.edges.truncate(frame.start);
        Ok(id)
    }

    fn push(&mut self, child: Child) {
        // The main root's frame stays open after its end tag, until `finish`.
        let inside = if self.probe.is_some() { self.frames.len() > 2 } else { !self.root_done };
        if inside {
            self.edges.push(child.pack());
        } else if self.probe.is_none() {
            self.epilog.push(child.pack());
        }
        // What surrounds the root of a further probe belongs to no document.
    }

    fn name(&mut self, name: QName<'_>, element: bool) -> Result<NameId, ImageError> {
        let uri = match &self.probe {
            Some(probe) if element && name.uri.is_empty() => probe.clone(),
            _ => name.uri.to_owned(),
        };
        self.store.name(&uri, name.prefix, name.local)
    }

    /// As `name`, by way of the cache where the name is the usual one: without a namespace.
    fn cached_name(&mut self, name: QName<'_>, element: bool) -> Result<NameId, ImageError> {
        if self.probe.is_some() || !name.uri.is_empty() || !name.prefix.is_empty() {
            return self.name(name, element);
        }
        let bytes = name.local.as_bytes();
        let (first, last) = (bytes[0] as usize, bytes[bytes.len() - 1] as usize);
        let place = (first * 31 + last * 7 + bytes.len()) % RECENT;
        if let Some((local, id)) = &self.recent[place]
            && local == name.local
        {
            return Ok(*id);
        }
        let id = self.name(name, element)?;
        self.recent[place] = Some((name.local.into(), id));
        Ok(id)
    }
}

impl Builder<'_> {
    fn text_id(&mut self, text: &str) -> Result<StrId, ImageError> {
        let bytes = text.as_bytes();
        if bytes.len() >= INDENTS
            || bytes.first() != Some(&b'\n')
            || bytes[1..].iter().any(|&b| b != b' ')
        {
            return self.store.intern_text(text);
        }
        if let Some(id) = self.indents[bytes.len()] {
            return Ok(id);
        }
        let id = self.store.intern_text(text)?;
        self.indents[bytes.len()] = Some(id);
        Ok(id)
    }
}

impl Sink for Builder<'_> {
    type Error = PutOrRefused;

    fn start(&mut self, name: QName<'_>) -> Result<(), Self::Error> {
        let name = self.cached_name(name, true)?;
        self.frames.push(Frame { name, start: self.edges.len(), attributes: 0 });
        Ok(())
    }

    fn attribute(&mut self, attribute: Attribute<'_>) -> Result<(), Self::Error> {
        let name = self.cached_name(attribute.name, false)?;
        let pair = self.store.intern_pair(name, attribute.value)?;
        self.edges.push(pair);
        self.frames.last_mut().expect("an element is open").attributes += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Self::Error> {
        if self.frames.len() == 2 && self.probe.is_none() {
            self.root_done = true;
            return Ok(());
        }
        let frame = self.frames.pop().expect("an element is open");
        let id = self.close(frame)?;
        self.edges.push(Child::Element(id).pack());
        Ok(())
    }

    fn recall(&mut self, markup: &str) -> Option<usize> {
        // A further probe's elements are put into its namespace, so equal markup is not an equal row.
        let (id, levels) = self.recall.find(markup).filter(|_| self.probe.is_none())?;
        self.edges.push(Child::Element(id).pack());
        Some(levels)
    }

    fn remember(&mut self, markup: &str, levels: usize) {
        if let Some(id) = self.closed.filter(|_| self.probe.is_none()) {
            self.recall.insert(markup, id, levels);
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Self::Error> {
        let id = self.text_id(text)?;
        self.edges.push(Child::Text(id).pack());
        Ok(())
    }

    fn comment(&mut self, text: &str) -> Result<(), Self::Error> {
        let id = self.store.intern_text(text)?;
        self.push(Child::Comment(id));
        Ok(())
    }

    fn instruction(&mut self, target: &str, data: &str) -> Result<(), Self::Error> {
        let name = self.store.name("", "", target)?;
        let id = self.store.intern_pair(name, data)?;
        self.push(Child::Instruction(id));
        Ok(())
    }
}

/// The error of a parse, before the probe's name is added.
pub enum PutOrRefused {
    Image(ImageError),
    Refused(crate::error::DocumentRefused),
}

impl From<crate::error::DocumentRefused> for PutOrRefused {
    fn from(error: crate::error::DocumentRefused) -> Self {
        PutOrRefused::Refused(error)
    }
}

impl From<ImageError> for PutOrRefused {
    fn from(error: ImageError) -> Self {
        PutOrRefused::Image(error)
    }
}

impl PutOrRefused {
    pub fn of(self, probe: &str) -> PutError {
        match self {
            PutOrRefused::Image(error) => PutError::Image(error),
            PutOrRefused::Refused(error) => PutError::Document(probe.to_owned(), error),
        }
    }
}
