//! Links between processes that a test cuts: connections stay open, and nothing passes.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Way to an address, which passes everything until it is cut.
pub struct Link {
    pub port: u16,
    cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Link {
    /// Opens a way to a port of this machine.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, SocketAddr::from(([127, 0, 0, 1], port)), is_cut.clone()));
            }
        });
        Self { port: own, cut, task }
    }

    /// Lets nothing pass any more.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets new connections pass; those that were cut are closed.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes bytes until the link is cut; then holds the connection until it is mended.
async fn pass(near: TcpStream, far: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    let was_cut = *is_cut.borrow();
    // Held open until the link is mended.
    let mut ends = (near, None);
    if !was_cut {
        let Ok(far) = TcpStream::connect(far).await else { return };
        let far = ends.1.insert(far);
        tokio::select! {
            _ = copy_bidirectional(&mut ends.0, far) => return,
            _ = is_cut.wait_for(|cut| *cut) => {}
        }
    }
    let _ = is_cut.wait_for(|cut| !*cut).await;
    drop(ends);
}
