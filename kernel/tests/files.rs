//! Files whose digest is right but whose tables are not: an error or a consistent image, no panic.
#![allow(missing_docs)]

mod common;

use common::image;
use tagmill_kernel::budget::Budget;
use tagmill_kernel::error::ImageError;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;

const HEADER: usize = 8 + 4 + 32;

/// The tables of an image as `file.rs` lays them out; numbers are those of rows.
#[derive(Clone)]
struct Tables {
    strings: Vec<&'static str>,
    names: Vec<u32>,
    pairs: Vec<u32>,
    elements: Vec<u32>,
    edges: Vec<u32>,
    roots: Vec<u32>,
}

impl Tables {
    /// A document of so many elements, each in the other.
    fn chain(levels: u32) -> Self {
        let inner = [1, 0, 0];
        let outer = (1..levels).flat_map(|id| [1, id - 1, 0]);
        let document = [0, levels - 1, 0];
        Tables {
            strings: vec!["", "a"],
            names: vec![0, 0, 0, 0, 0, 1],
            pairs: vec![1, 1],
            elements: inner.into_iter().chain(outer).chain(document).collect(),
            edges: (0..levels).map(|id| id << 2).collect(),
            roots: vec![levels],
        }
    }

    fn open(&self) -> Result<PartitionImage, ImageError> {
        let mut body = Vec::new();
        let mut section = |bytes: &[u8]| {
            body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            body.extend_from_slice(bytes);
        };
        section(self.strings.concat().as_bytes());
        let ends = self.strings.iter().scan(0, |end, string| {
            *end += string.len() as u32;
            Some(*end)
        });
        let ends: Vec<u32> = ends.collect();
        for table in [&ends, &self.names, &self.pairs, &self.elements, &self.edges, &self.roots] {
            let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
            section(&bytes);
        }
        let mut file = b"TAGMILLP".to_vec();
        file.extend_from_slice(&1_u32.to_le_bytes());
        file.extend_from_slice(blake3::hash(&body).as_bytes());
        file.extend_from_slice(&body);
        PartitionImage::from_bytes(&file)
    }
}

#[test]
fn a_file_is_no_deeper_than_a_composed_document() {
    let levels = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
    let mut composed = PartitionImage::new();
    let (main, other) = (levels(256), levels(256));
    composed.put(0, &[("lshw", main.as_bytes()), ("x", other.as_bytes())]).expect("both are good");
    PartitionImage::from_bytes(&composed.to_bytes()).expect("what was saved can be opened");

    let deepest = Tables::chain(257).open().expect("as deep as the composed one");
    let text = common::expression("//a[not(a)]/preceding::a or count(//a) = 257");
    assert_eq!(evaluate(&deepest, &text, None, &Budget::new(u64::MAX)), Ok(vec![1]));
    for levels in [258, 70_000] {
        assert!(Tables::chain(levels).open().is_err(), "{levels}");
    }
}

#[test]
fn a_file_that_has_anything_twice_is_refused() {
    let good = Tables::chain(2);
    good.open().expect("it is consistent");
    let with = |change: fn(&mut Tables)| {
        let mut tables = good.clone();
        change(&mut tables);
        tables
    };
    for (what, tables) in [
        ("string", with(|tables| tables.strings.push("a"))),
        ("name", with(|tables| tables.names.extend([0, 0, 1]))),
        ("pair", with(|tables| tables.pairs.extend([1, 1]))),
    ] {
        assert!(tables.open().is_err(), "{what}");
    }
}

#[test]
fn a_document_is_no_child() {
    let mut tables = Tables::chain(2);
    tables.elements[0] = 0;
    assert!(tables.open().is_err());
}

#[test]
fn a_signed_file_with_any_byte_changed_opens_safely() {
    let directory = std::env::temp_dir().join(format!("tagmill-kernel-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let path = directory.join("image");
    let document = "<a b='1'><!--c--><?p d?><b>text</b><b>text</b></a>";
    image(&[document, "<b/>"]).save(&path).expect("a writable directory");
    let whole = std::fs::read(&path).expect("the file just written");
    let mut refused = 0;
    for at in HEADER..whole.len() {
        for change in [1, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            let digest = *blake3::hash(&bytes[HEADER..]).as_bytes();
            bytes[12..HEADER].copy_from_slice(&digest);
            std::fs::write(&path, &bytes).expect("a writable directory");
            match PartitionImage::open(&path) {
                Err(_) => refused += 1,
                Ok(opened) => {
                    for text in ["//b[. = 'text']", "//*/ancestor::a", "count(//@b) = 1"] {
                        let _ =
                            evaluate(&opened, &common::expression(text), None, &Budget::new(9999));
                    }
                }
            }
        }
    }
    std::fs::remove_dir_all(&directory).expect("the directory just made");
    assert!(refused > 0);
}
