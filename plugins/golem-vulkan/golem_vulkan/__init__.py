"""golem-vulkan: any graph on a Vulkan device."""
