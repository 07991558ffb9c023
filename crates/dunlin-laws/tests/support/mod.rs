//! Reports and checks the result of a matrix test.

use std::path::Path;

use dunlin_laws::Report;

/// Prints the matrix, writes it to `laws/NAME.txt` in the build folder, and fails if a cell is broken.
///
/// # Panics
/// If a cell is broken, or the file cannot be written.
pub(crate) fn judge(name: &str, report: &Report) {
    let text = format!("{report}\n{} cells hold\n", report.held());
    println!("\n{text}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("laws");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.txt")), text).unwrap();
    let broken = report.broken();
    assert!(broken.is_empty(), "{} cells are broken:\n{}", broken.len(), broken.join("\n"));
}
