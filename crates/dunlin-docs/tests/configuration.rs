//! The configuration files that the documents show are accepted.

use dunlin::config::Sources;

#[test]
fn the_files_in_the_documents_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for text in [
        include_str!("../../../docs/config.md"),
        include_str!("../../../docs/deploy.md"),
        include_str!("../../../docs/farms.md"),
    ] {
        for block in text.split("```toml\n").skip(1) {
            let file = folder.path().join("dunlin.toml");
            std::fs::write(&file, block.split("```").next().unwrap()).unwrap();
            // Checks the whole file, including the sections of other nodes.
            Sources::file(&file).unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 3);
    std::fs::write(folder.path().join("dunlin.toml"), "graec = '1s'").unwrap();
    assert!(Sources::file(folder.path().join("dunlin.toml")).is_err());
}
