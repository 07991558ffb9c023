//! A program that sends and receives each of these types between nodes.

/// Defines the types, and `run`.
macro_rules! types {
    ($($name:ident)*) => {
        $(
            #[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
            struct $name {
                number: u64,
                text: String,
                list: Vec<u32>,
            }
        )*

        async fn run() -> dunlin::prelude::Result {
            let node = dunlin::node::Node::builder().app("types").join().await?;
            $(
                node.sender::<$name>(concat!("to-", stringify!($name))).await?.send($name::default()).await?;
                node.receiver::<$name>(concat!("from-", stringify!($name))).await?.recv().await?;
            )*
            node.leave().await
        }
    };
}
pub(crate) use types;
