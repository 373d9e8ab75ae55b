"""Other people's tools and studies, rebuilt as yardsticks: nothing of foretell depends on them."""
