//! `#[remote]`: an `async fn` that other nodes can start, or a `fn` that can run in another process of the
//! operating system.
//!
//! The expansion of `#[remote] async fn words(text: String) -> usize { .. }`, with names shortened:
//!
//! ```text
//! enum words {}                                   // in the namespace of types: `words` names both
//! impl RemoteFunction for words {
//!     type Arguments = (String,);
//!     type Output = usize;
//!     const NAME: &str = "shop::words";
//!     fn run((a0,): (String,)) -> impl Future<Output = usize> {
//!         async fn words(text: String) -> usize { .. }
//!         words(a0)
//!     }
//! }
//! fn words(a0: String) -> RemoteCall<words> {
//!     RemoteCall::new((a0,))                      // nothing has run yet
//! }
//! ```
//!
//! The expansion of `#[remote] fn sum(n: u64, by: u64) -> u64 { .. }`, with names shortened:
//!
//! ```text
//! enum sum {}                                     // in the namespace of types: `sum` names both
//! impl sum {
//!     const ENTRY: Entry = {
//!         fn sum(n: u64, by: u64) -> u64 { .. }
//!         fn serve(bytes: &[u8]) -> Result<Vec<u8>, String> { serve(bytes, |(a0, a1,)| sum(a0, a1)) }
//!         Entry::new(NAME, serve)                 // `#[main(remote = [sum])]` lists it
//!     };
//! }
//! fn sum(a0: u64, a1: u64) -> Remote<u64> {
//!     remote(&sum::ENTRY, &(a0, a1,))             // nothing has run yet
//! }
//! ```

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, FnArg, ItemFn, Result, ReturnType, Safety, Type, parse_quote, parse2};

pub(crate) fn expand(arguments: TokenStream, function: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "the attribute may not have arguments"));
    }
    let ItemFn { attrs, vis, modifiers, sig, block } = parse2(function)?;
    modifiers.require_empty()?;
    if let Safety::Unsafe(word) = &sig.safety {
        return Err(Error::new_spanned(word, "a remote function may not be `unsafe`"));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(&sig.generics, "a remote function may not have generic parameters"));
    }
    let mut types: Vec<&Type> = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Typed(typed) => types.push(&typed.ty),
            FnArg::Receiver(receiver) => {
                return Err(Error::new_spanned(receiver, "a remote function may not be a method"));
            }
        }
    }
    let output: Type = match &sig.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, output) => (**output).clone(),
    };
    let name = &sig.ident;
    let fresh: Vec<_> = (0..types.len()).map(|number| format_ident!("__argument{number}")).collect();
    let conditions: Vec<_> = attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
    let kind = quote! {
        #(#conditions)*
        #[doc(hidden)]
        #[allow(missing_docs, non_camel_case_types, reason = "it has the name of the function")]
        #[derive(Debug)]
        #vis enum #name {}
    };
    if sig.asyncness.is_some() {
        return Ok(quote! {
            #kind

            #(#conditions)*
            impl ::dunlin::RemoteFunction for #name {
                type Arguments = (#(#types,)*);
                type Output = #output;
                const NAME: &'static str = concat!(module_path!(), "::", stringify!(#name));

                fn run(
                    (#(#fresh,)*): Self::Arguments,
                ) -> impl ::core::future::Future<Output = Self::Output> + ::core::marker::Send + 'static {
                    #sig #block
                    #name(#(#fresh),*)
                }
            }

            #(#attrs)*
            #vis fn #name(#(#fresh: #types),*) -> ::dunlin::RemoteCall<#name> {
                ::dunlin::RemoteCall::new((#(#fresh,)*))
            }
        });
    }
    Ok(quote! {
        #kind

        #(#conditions)*
        impl #name {
            #[doc(hidden)]
            pub const __ENTRY: ::dunlin::__rt::RemoteEntry = {
                #sig #block
                fn __serve(bytes: &[u8]) -> ::core::result::Result<::std::vec::Vec<u8>, ::std::string::String> {
                    ::dunlin::__rt::serve_remote(bytes, |(#(#fresh,)*): (#(#types,)*)| #name(#(#fresh),*))
                }
                ::dunlin::__rt::RemoteEntry::new(
                    concat!(module_path!(), "::", stringify!(#name), " at ", file!(), ":", line!(), ":", column!()),
                    __serve,
                )
            };
        }

        #(#attrs)*
        #vis fn #name(#(#fresh: #types),*) -> ::dunlin::blocking::Remote<#output> {
            ::dunlin::__rt::remote(&#name::__ENTRY, &(#(#fresh,)*))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_cannot_run_remotely_are_refused() {
        let cases = [
            (
                quote!(),
                quote!(
                    async fn f<T>(t: T) {}
                ),
                "not have generic parameters",
            ),
            (
                quote!(),
                quote!(
                    fn f<T>(t: T) {}
                ),
                "not have generic parameters",
            ),
            (
                quote!(),
                quote!(
                    fn f(&self) {}
                ),
                "not be a method",
            ),
            (
                quote!(),
                quote!(
                    unsafe fn f() {}
                ),
                "not be `unsafe`",
            ),
            (
                quote!(twice),
                quote!(
                    fn f() {}
                ),
                "not have arguments",
            ),
        ];
        for (arguments, function, why) in cases {
            let error = expand(arguments, function).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn remote_functions_may_have_patterns_and_no_output() {
        let synchronous = quote!(
            pub(crate) fn f((a, b): (u8, u8), mut c: Vec<u8>) {}
        );
        let asynchronous = quote!(
            pub(crate) async fn f((a, b): (u8, u8), mut c: Vec<u8>) {}
        );
        for (function, result) in [(synchronous, "Remote < () >"), (asynchronous, "RemoteCall < f >")] {
            let expansion = expand(quote!(), function).unwrap().to_string();
            assert!(expansion.contains(result), "{expansion}");
        }
    }
}
