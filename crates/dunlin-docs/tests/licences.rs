//! Every crate that a program which uses dunlin contains has a licence that the program's users can accept.

use cargo_metadata::{CargoOpt, DependencyKind, MetadataCommand, Package};
use spdx::{Expression, LicenseReq};

/// These licences require only that their text is distributed too (BSL-1.0, with the sources only).
const ALLOWED: [&str; 9] =
    ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Unlicense", "Zlib"];

fn is_allowed(requirement: &LicenseReq) -> bool {
    requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name))
}

/// The problem of a licence, if it has one.
fn complaint(licence: Option<&str>) -> Option<String> {
    let Some(text) = licence else { return Some("has no licence".to_owned()) };
    // "MIT/Apache-2.0" is the old way to write it.
    match Expression::parse(&text.replace('/', " OR ")) {
        Ok(expression) if expression.evaluate(is_allowed) => None,
        Ok(_) => Some(format!("is under {text}, of which not enough is allowed")),
        Err(error) => Some(format!("has a licence that cannot be read: {}", error.reason)),
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .other_options(["--locked".to_owned()])
        .exec()
        .unwrap();
    let wrong: Vec<String> = metadata
        .packages
        .iter()
        .filter_map(|package| {
            Some(format!("{} {} {}", package.name, package.version, complaint(package.license.as_deref())?))
        })
        .collect();
    assert!(metadata.packages.len() > 50, "they were not found");
    assert!(wrong.is_empty(), "to allow a licence, add it to ALLOWED in this test:\n{}", wrong.join("\n"));
}

#[test]
fn disallowed_licences_are_reported() {
    assert_eq!(complaint(Some("MIT OR GPL-3.0-only")), None);
    assert_eq!(complaint(Some("MIT/Apache-2.0")), None);
    for bad in [Some("GPL-3.0-only"), Some("MIT AND GPL-3.0-only"), Some("my own"), Some("LicenseRef-ours"), None] {
        assert!(complaint(bad).is_some(), "{bad:?}");
    }
}

/// A published crate depends only on published crates, and has the metadata that a registry requires.
#[test]
fn published_crates_are_ready_for_the_registry() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let is_published = |package: &&Package| package.publish.is_none();
    let published: Vec<&str> =
        metadata.packages.iter().filter(is_published).map(|package| package.name.as_str()).collect();
    assert!(["dunlin", "dunlin-cli", "dunlin-demo", "dunlin-terminal"].iter().all(|name| published.contains(name)));
    for package in metadata.packages.iter().filter(is_published) {
        let name = &package.name;
        assert!(package.description.is_some() && package.repository.is_some(), "{name}");
        assert!(!package.keywords.is_empty() && !package.categories.is_empty(), "{name}: keywords, categories");
        assert!(package.readme().is_some(), "{name} has no readme");
        let folder = package.manifest_path.parent().unwrap();
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder.join(licence).exists(), "{name} has no {licence}: `ln -s ../../{licence}`");
        }
        for dependency in package.dependencies.iter().filter(|one| one.kind != DependencyKind::Development) {
            let ours = dependency.name.starts_with("dunlin");
            assert!(!ours || published.contains(&dependency.name.as_str()), "{name} needs {}", dependency.name);
        }
    }
}
