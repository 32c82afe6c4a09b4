//! Files whose digest is right but whose tables are not: an error or a consistent image, no panic.
#![allow(missing_docs)]

mod common;

use common::image;
use tagmill_kernel::budget::Budget;
use tagmill_kernel::image::PartitionImage;
use tagmill_kernel::plan::evaluate;

const HEADER: usize = 8 + 4 + 32;

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
