//! The configuration of a simulated node.

use dunlin::config::Origin;
use dunlin::prelude::*;

/// A simulation is the same everywhere: it uses neither files nor variables of its host.
#[test]
fn simulation_reads_no_configuration_of_its_host() {
    let joined = dunlin::sim::Sim::new(1).run(async {
        let node = Node::builder().config("/no such folder/dunlin.toml")?.app("simulated").join().await?;
        assert!(node.config().files.is_empty());
        let rows = node.config().rows();
        let read = rows.iter().filter(|(_, _, origin)| !matches!(origin, Origin::Code | Origin::Default));
        assert_eq!(read.count(), 0);
        node.leave().await
    });
    joined.unwrap();
}
